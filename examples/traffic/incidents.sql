-- What happened on the road, for PostgreSQL and SQLite alike. The incidents are made up; the segments are those of
-- la_loop_speeds_day.parquet.
CREATE TABLE incidents (
    segment text NOT NULL,
    reported timestamptz NOT NULL,
    description text NOT NULL
);
INSERT INTO incidents VALUES
    ('716339', '2012-02-29 16:40:00+00:00', 'debris on the road'),
    ('716339', '2012-03-01 07:05:00+00:00', 'road works'),
    ('717458', '2012-03-01 07:40:00+00:00', 'crash'),
    ('767350', '2012-03-01 06:30:00+00:00', 'crash'),
    ('765171', '2012-03-01 06:10:00+00:00', 'crash'),
    ('764853', '2012-03-01 09:20:00+00:00', 'broken-down truck');
