-- Which segments of the road people know.
CREATE RELATION known (person TEXT, segment TEXT)
FROM 'examples/traffic/known.csv' REFRESH EVERY 1 MINUTE;
