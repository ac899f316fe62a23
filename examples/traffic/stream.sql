-- Declared before the motes offer it, so that queries can stand before the first sample.
CREATE STREAM traffic (sensor TEXT FIXED, speed REAL) SOURCE mqtt();
