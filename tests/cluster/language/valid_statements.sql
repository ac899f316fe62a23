-- Selecting and computing
SELECT * FROM traffic
SELECT t.*, t.speed > 60 AS fast FROM traffic AS t
SELECT STAMP() AS at, TIMESTAMP_MICROS(lane) AS l FROM traffic AS t WHERE STAMP(t) > TIMESTAMP_MICROS(5)
SELECT TIMESTAMP '2026-03-29 02:30:00+01:00' AS a, INTERVAL '5' MINUTE AS b, INTERVAL 5 HOURS AS c, INTERVAL '1 day 2 hours' AS d FROM traffic
SELECT STAMP() + INTERVAL '5' MINUTE AS a, STAMP() - INTERVAL '5' MINUTE AS b, STAMP() - TIMESTAMP '2026-01-01' AS c, -INTERVAL '5' MINUTE * 2 / 3 AS d FROM traffic
SELECT EXTRACT(HOUR FROM STAMP()) AS a, DATE_PART('dow', STAMP()) AS b, YEAR(STAMP()) AS c, EXTRACT(EPOCH FROM STAMP() - STAMP()) AS d FROM traffic
SELECT DATE_TRUNC('hour', STAMP()) AS a, DATE_DIFF('minute', STAMP(), STAMP()) AS b, TIMESTAMPDIFF(MINUTE, STAMP(), STAMP()) AS c FROM traffic
SELECT STAMP() AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC' AS a, STAMP() AT TIME ZONE 'Asia/Tokyo' AS b FROM traffic
SELECT STRFTIME(STAMP(), '%Y') AS a, DATE_FORMAT(STAMP(), 'yyyy') AS b, TO_CHAR(STAMP(), 'YYYY') AS c, CAST(sensor AS TIMESTAMP) AS d, TRY_CAST(sensor AS TIMESTAMP) AS e, sensor::timestamp AS f, TO_TIMESTAMP(sensor) AS g FROM traffic
SELECT sensor FROM traffic WHERE STAMP() > NOW() - INTERVAL '5' MINUTE AND lane = 1
SELECT sensor FROM traffic AS t WHERE CURRENT_TIMESTAMP <= STAMP(t) + INTERVAL '5' MINUTE
SELECT STAMP(t) AS at, STAMP(w) AS seen FROM traffic AS t, weather AS w WINDOW(RANGE 1 HOUR)
SELECT sensor, speed * 1.609 AS kmh FROM traffic WHERE lane = 1 AND speed IS NOT NULL
SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 1 HOUR)
SELECT "lane" AS "from", 'it''s' AS note, TRUE AS yes, 1e3 AS k FROM traffic "t"
SELECT speed FROM traffic WHERE NOT open OR lane % 2 <> 1
SELECT -speed AS back, (speed + lane) / 2 - 0.5 AS x FROM traffic
SELECT CASE WHEN speed > 60 THEN 'fast' WHEN speed IS NULL THEN 'unknown' ELSE 'slow' END AS pace FROM traffic
SELECT CASE lane WHEN 1 THEN 'left' ELSE 'right' END AS side FROM traffic
SELECT COALESCE(speed, 0) AS v, ROUND(speed, 1) AS r, POWER(speed, 2) AS p, IF(open, 1, 2) AS x FROM traffic
SELECT UPPER(SUBSTRING(sensor, 1, 3)) || '-' || TRIM(sensor) AS label, CAST(lane AS REAL) AS l FROM traffic
SELECT GREATEST(speed, 1) AS g, NULLIF(speed, 0) AS n, TRY_CAST(sensor AS INTEGER) AS i FROM traffic
SELECT sensor FROM traffic WHERE sensor LIKE 'I-%' AND lane IN (1, 2) AND (speed BETWEEN 10 AND 90 OR NOT open)
SELECT sensor FROM traffic WHERE sensor SIMILAR TO 'I-(5|8%)' AND sensor NOT SIMILAR TO 'a!%_' ESCAPE '!' AND speed BETWEEN SYMMETRIC 9 AND 1 AND lane NOT BETWEEN ASYMMETRIC 1 AND 2
SELECT TO_TIMESTAMP(sensor, 'dd.MM.yyyy HH:mm') AS a, REGEXP_SUBSTR(sensor, '[0-9]+') AS b FROM traffic
SELECT lane, GROUPING_ID(lane, open) AS g, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY CUBE(lane, open)
SELECT STAMP() + INTERVAL '1 12:30' DAY TO MINUTE AS a, STAMP() - INTERVAL '12:30:05.5' HOUR TO SECOND AS b FROM traffic
SELECT COT(speed) AS a, SINH(speed) AS b, COSH(speed) AS c, TANH(speed) AS d, TRIM(BOTH '0' FROM sensor) AS e, TRIM(LEADING FROM sensor) AS f, TRIM(TRAILING 'a' FROM sensor) AS g, LTRIM(sensor, 'a') AS h, RTRIM(sensor, 'b') AS i, BTRIM(sensor, 'c') AS j, TRIM(sensor) AS k FROM traffic
SELECT POSITION('-' IN sensor) AS a, STRPOS(sensor, '-') AS b, INSTR(sensor, '-') AS c, LOCATE('-', sensor) AS d, STARTS_WITH(sensor, 'I') AS e, ENDSWITH(sensor, '5') AS f, REVERSE(sensor) AS g FROM traffic
SELECT FLOOR(STAMP() TO HOUR) AS a, CEIL(STAMP() TO MINUTE) AS b, CEILING(STAMP() TO MONTH) AS c, TIMESTAMPADD(MINUTE, lane, STAMP()) AS d FROM traffic
SELECT sensor FROM traffic WHERE sensor NOT LIKE 'a!%' ESCAPE '!' AND lane NOT IN (3) AND speed NOT BETWEEN 1 AND 2
SELECT CONCAT(sensor, 'x') AS c, LENGTH(sensor) AS l, ABS(speed) AS a, FLOOR(speed) AS f FROM traffic
SELECT LOWER(sensor) AS l, CEIL(speed) AS c, LEAST(speed, lane) AS s, LN(speed) AS n, SQRT(speed) AS q, EXP(speed) AS e, SIGN(speed) AS g FROM traffic WHERE speed <= 90
SELECT RADIANS(speed) AS r, DEGREES(PI()) AS d, LOG10(speed) AS l, LOG2(lane) AS m, TRUNC(speed) AS t, DISTANCE_METRES(speed, flow, 52.5, lane) AS way FROM traffic
SELECT LEFT(sensor, 2) AS l, RIGHT(sensor, -1) AS r, LPAD(sensor, 9) AS p, RPAD(sensor, lane, '.') AS q FROM traffic
SELECT SPLIT_PART(sensor, '-', -1) AS s, REPLACE(sensor, 'I-', sensor) AS t, lpad(sensor, 9, LEFT(sensor, 1)) AS u FROM traffic
SELECT REGEXP_EXTRACT(sensor, '\d+') AS n, REGEXP_EXTRACT(sensor, '(\w+)-(\d+)', 2) AS m, REGEXP_REPLACE(sensor, '(\d)', '<\1>') AS r FROM traffic
SELECT REGEXP_MATCHES(sensor, ('^a')) AS m FROM traffic WHERE sensor ~ '^I' AND sensor !~* 'x$' OR regexp_like(sensor, '(?i)a.b') AND sensor NOT RLIKE 'a' AND sensor REGEXP 'b'
SELECT JSON_VALUE(sensor, '$.a.b[0]') AS v, JSON_VALUE(sensor, '$["a b"]' RETURNING DOUBLE PRECISION) AS r, JSON_QUERY(sensor, 'lax $."a"') AS q, json_exists(sensor, '$') AS e FROM traffic
SELECT JSON_EXTRACT(sensor, '$[-1]') AS a, GET_JSON_OBJECT(sensor, '$.é') AS b, UPPER(t.sensor -> 'a' ->> 'b') AS c, ('[' || sensor || ']') -> -1 AS d FROM traffic t WHERE sensor ->> 0 = 'x' AND sensor -> 'b' IS NOT NULL
SELECT speed AS json_value, lane AS returning, sensor ->> 'lane'::INTEGER + 1 AS lane FROM traffic
SELECT STRING_AGG(sensor, ', ') AS a, STRING_AGG(DISTINCT sensor, '' ORDER BY sensor DESC) AS b, string_agg(sensor, ',' ORDER BY (sensor) ASC) FILTER (WHERE open) AS c FROM traffic WINDOW(RANGE 1 HOUR)
SELECT LISTAGG(sensor) AS a, LISTAGG(DISTINCT sensor, '-') WITHIN GROUP (ORDER BY sensor DESC) AS b, lane FROM traffic t WINDOW(RANGE 1 HOUR) GROUP BY lane HAVING LENGTH(STRING_AGG(t.sensor, ',')) > 5
SELECT (SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 HOUR) LIFETIME 90 DAYS) AS a, 1 + (SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 HOUR) LIFETIME 90 DAYS) AS b FROM weather
SELECT speed - (SELECT AVG(speed) FROM traffic WINDOW(RANGE 1 HOUR)) AS d, CASE WHEN lane > 1 THEN ((SELECT MAX(wind) FROM weather)) END AS m FROM traffic WHERE (SELECT BOOL_OR(open) FROM traffic) AND NOT speed BETWEEN (SELECT MIN(speed) FROM traffic) AND 2 * (SELECT MAX(speed) FROM traffic)
SELECT sensor, SUM(speed - (SELECT AVG(wind) FROM weather w WHERE w.sensor = t.sensor)) / (SELECT COUNT(*) FROM traffic) AS s FROM traffic t WINDOW(RANGE 1 HOUR) GROUP BY sensor HAVING ABS(MAX(speed) - (SELECT MAX(u.speed) FROM traffic u WINDOW(RANGE 1 HOUR) WHERE u.sensor = t.sensor)) > 1
SELECT speed FROM traffic WHERE (SELECT MIN(speed) FROM traffic) < (SELECT AVG(wind) FROM weather) AND speed + (SELECT MAX(wind) FROM weather) NOT IN (SELECT wind FROM weather) AND speed IN ((SELECT MAX(speed) FROM traffic), 3)
SELECT * EXCEPT (speed) FROM traffic
SELECT wear(speed, sensor) AS w FROM traffic WHERE WEAR(lane + 1, 'x') > 0.5 AND wear(speed, NULL) IS NOT NULL
SELECT t.* EXCLUDE (speed, LANE) FROM traffic t WHERE open IS NOT TRUE OR open IS FALSE OR open IS UNKNOWN
SELECT CONCAT(lane, ' ', open, speed) AS c, lane IS DISTINCT FROM 2 AS d FROM traffic WHERE speed IS NOT DISTINCT FROM lane
SELECT sensor FROM traffic WHERE sensor ILIKE 'i-%' AND sensor NOT ILIKE 'A!%' ESCAPE '!' AND (lane, sensor) NOT IN ((1, 'a'), (2, NULL))

-- Windows
SELECT speed FROM traffic WINDOW(RANGE 5 MINUTES SLIDE 1 MINUTE) AS t
SELECT sensor, speed FROM traffic t WINDOW(RANGE UNBOUNDED) WHERE speed > 100
SELECT AVG(speed) AS recent FROM traffic WINDOW(ROWS 100 SLIDE 10)
SELECT sensor, AVG(speed) AS recent FROM traffic WINDOW(PARTITION BY sensor, lane ROWS 10) GROUP BY sensor
SELECT sensor, COUNT(*) AS cars FROM traffic WINDOW(SESSION GAP 5 MINUTES MAX 2 HOURS EARLY PARTITION BY sensor) GROUP BY sensor
SELECT sensor, lane FROM traffic WINDOW(PARTITION BY sensor, lane SESSION GAP 30 SECONDS) AS t
SELECT sensor, WINDOW_START() AS since, WINDOW_END() AS until, COUNT(*) AS n FROM traffic WINDOW(SESSION GAP 5 MINUTES PARTITION BY sensor) WHERE sensor = 'a' GROUP BY sensor HAVING WINDOW_START() IS NOT NULL
SELECT COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 DAY SLIDE 1 DAY AT TIME ZONE 'Europe/Berlin' OFFSET 6 HOURS)
SELECT MAX(speed) AS fastest FROM traffic t WINDOW(RANGE 1 QUARTER SLIDE 1 MONTH)
SELECT MAX(speed) AS fastest FROM traffic WINDOW(RANGE 1 HOUR OFFSET 5 MINUTES SLIDE 10 MINUTES)
SELECT COUNT(*) AS cars FROM traffic WINDOW(RESET EVERY 1 DAY AT TIME ZONE 'America/New_York' SLIDE 1 MINUTE)
SELECT WINDOW_START() AS s, lane, COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 HOUR SLIDE 5 MINUTES) GROUP BY lane HAVING WINDOW_END() > TIMESTAMP_MICROS(5)
SELECT COUNT(*) AS cars FROM traffic WINDOW(RESET EVERY 8 HOURS OFFSET 6 HOURS)
SELECT sensor, speed FROM traffic VALID UNTIL NEXT BY sensor MAX 10 MINUTES WHERE speed > 50
SELECT lane, COUNT(*) AS n FROM traffic AS t VALID UNTIL NEXT BY (sensor, lane) GROUP BY lane
SELECT t.sensor, VALID(t), DURATION(VALID(t)) AS d FROM traffic VALID UNTIL NEXT BY sensor MAX 10 MINUTES AS t
SELECT t.sensor, INTERSECT(VALID(t), VALID(w)) AS both, ALLEN(VALID(w), VALID(t)) AS r FROM traffic VALID UNTIL NEXT MAX 1 MINUTE AS t, weather VALID UNTIL NEXT BY sensor MAX 1 HOUR AS w WHERE VALID(t) OVERLAPS VALID(w) AND NOT (VALID(t)) CONTAINS VALID(w)
SELECT s.sensor, s.lane, VALID(s) AS held FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(lane, speed TOLERANCE 2 BY sensor) AS s WHERE s.speed ~= 50 TOLERANCE 5
SELECT s.sensor, s.lane, s.quality FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) COALESCE(lane BY sensor) KEEP 10000 TUPLES AS s WHERE s.quality > 0.5
SELECT sensor, MIN(quality) AS q FROM traffic WINDOW(ROWS 100) COALESCE(open BY sensor) GROUP BY sensor KEEP 50 TUPLES LIFETIME 90 DAYS
SELECT sensor, speed FROM traffic WINDOW(ROWS 100) COALESCE(speed BY sensor, lane WHILE speed >= PREV(speed)) WHERE speed ~= lane
SELECT sensor, lane FROM DSTREAM(traffic VALID UNTIL NEXT BY sensor MAX 10 MINUTES)
SELECT sensor, MAX(DURATION(VALID(t))) AS d FROM traffic VALID UNTIL NEXT BY sensor MAX 1 HOUR WINDOW(RANGE 1 DAY SLIDE 1 HOUR) AS t GROUP BY sensor
SELECT COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 HOUR) GRANULARITY(1 MINUTE)
SELECT COUNT(*) AS cars FROM traffic WINDOW(RANGE MIN 12 HOURS, MAX 24 HOURS) GRANULARITY(COARSEST 2 HOURS, FINEST 10 SECONDS)
SELECT MAX(n) AS peak FROM (SELECT COUNT(*) AS n FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE)) AS m WINDOW(RANGE 1 HOUR)

-- Grouping
SELECT sensor, COUNT(*) AS cars, AVG(speed) AS mean FROM traffic WINDOW(RANGE 30 MINUTES) WHERE speed > 0 GROUP BY sensor HAVING COUNT(*) > 10
SELECT lane % 2 = 0 AS even, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY even, open HAVING n > 1
SELECT COUNT(DISTINCT sensor) AS s, SUM(lane) AS l, STDDEV(speed) AS d, VARIANCE(speed) AS v, MEDIAN(speed) AS m, APPROX_QUANTILE(speed, 0.95) AS q, MIN(speed) AS i FROM traffic WINDOW(RANGE 1 HOUR)
SELECT FIRST_VALUE(speed) AS f, LAST_VALUE(speed) FILTER (WHERE lane = 1) AS l, SUM(ALL lane) AS s FROM traffic WINDOW(RANGE 1 HOUR)
SELECT MOD(MAX(ALL lane), 2) AS odd FROM traffic WINDOW(RANGE 1 HOUR)
SELECT FIRST(speed) AS f, LAST(speed) AS l, MAX(speed) - MIN(speed) AS w FROM traffic WINDOW(RANGE 1 HOUR)
SELECT sensor, AVG(speed WITHIN 0.5) AS speed, ERROR_BOUND(AVG(speed)) AS e, COMPLETENESS() AS seen FROM traffic WINDOW(RANGE 1 MINUTE SLIDE 1 MINUTE) GROUP BY sensor SAMPLE EVERY 10 SECONDS
SELECT lane, sensor, open, COUNT(*) AS n, GROUPING(lane, sensor) AS g FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY lane, GROUPING SETS ((sensor, open), (), CUBE(speed > 1), ROLLUP((open, 2), sensor)) HAVING GROUPING(open) = 0
SELECT lane, QUANTILE(speed, 0.5) AS q FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY lane
SELECT lane, COUNT(*) FILTER (WHERE open) AS n, BOOL_AND(speed > 1) AS a, EVERY(speed > 2) AS e, BOOL_OR(speed > 1) AS o FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY 1
SELECT sensor, CONCAT((lane, (speed)) NOT IN ((1, (2.5)), (2, 3.0)), flow) AS c FROM traffic
SELECT MODE(lane) AS m, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY speed) AS c, PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY sensor) FILTER (WHERE open) AS d FROM traffic WINDOW(RANGE 1 HOUR)
SELECT ARG_MAX(sensor, speed) AS fastest, MIN_BY(speed, sensor || 'x') FILTER (WHERE open) AS f FROM traffic WINDOW(RANGE 1 HOUR)
SELECT STDDEV_POP(speed) AS d, VAR_POP(speed) AS v, STDDEV_SAMP(flow) AS s FROM traffic WINDOW(RANGE 1 HOUR)

-- Joins
SELECT t.sensor, w.wind FROM traffic AS t, weather AS w WINDOW(RANGE 1 HOUR) WHERE t.sensor = w.sensor
SELECT t.sensor, w.wind FROM traffic AS t JOIN weather AS w WINDOW(RANGE 1 HOUR) ON t.sensor = w.sensor
SELECT a.sensor, b.lane FROM traffic a WINDOW(RANGE 1 SECOND) CROSS JOIN traffic b WINDOW(RANGE 1 SECOND)
SELECT SUBSTR(sensor, CASE WHEN lane IS DISTINCT FROM 3 THEN 1 END), SUBSTRING(sensor FROM 2) FROM traffic
SELECT sensor, w.wind FROM traffic AS t JOIN weather AS w WINDOW(RANGE 1 HOUR) USING (sensor)
SELECT * FROM traffic t LEFT JOIN places p USING (sensor) WHERE t.open
SELECT t.sensor, p.km FROM traffic t LEFT JOIN places p ON t.sensor = p.sensor AND p.km > 1 WHERE t.open
SELECT t.sensor, w.wind FROM traffic AS t WINDOW(RANGE 1 HOUR) LEFT JOIN weather AS w WINDOW(RANGE 1 HOUR) ON t.sensor = w.sensor
SELECT * FROM places p RIGHT OUTER JOIN traffic t USING (sensor) WHERE t.open
SELECT sensor, lane, wind FROM traffic t WINDOW(RANGE 1 HOUR) FULL JOIN weather w WINDOW(RANGE 1 HOUR) USING (sensor) WHERE wind IS NULL
SELECT t.sensor, w.wind, apart_us FROM traffic AS t ZIP JOIN weather AS w WITHIN 50 MILLISECONDS ON t.sensor = w.sensor
SELECT t.lane FROM traffic t FULL ZIP JOIN weather w WITHIN -1 SECOND TO 2 SECONDS WHERE apart_us IS NULL
SELECT t.lane FROM traffic t LEFT ZIP JOIN weather w ON t.sensor = w.sensor
SELECT sensor, n FROM traffic AS t MATCH_RECOGNIZE (PARTITION BY sensor, lane ORDER BY STAMP() ASC MEASURES COUNT(B.*) AS n, PREV(B.speed, 2) - FIRST(A.speed) AS x PATTERN (A B+ C??) WITHIN 10 MINUTES DEFINE A AS speed > 50, B AS B.speed < LAST(A.speed, 0) / 2) AS m
SELECT * FROM (SELECT lane FROM traffic WHERE open) MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES LAST(lane, 1) AS l ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A{2} B{1,3}? A)WITHIN INTERVAL '5' MINUTE) WINDOW(RANGE 1 HOUR)
SELECT m.x FROM traffic MATCH_RECOGNIZE (ORDER BY STAMP() MEASURES SUM(B.flow) FILTER (WHERE B.open) AS x AFTER MATCH SKIP TO FIRST B PATTERN (A B) DEFINE B AS PREV(open) AND A.lane IS NULL) AS m WHERE m.x > 1
SELECT t.lane, w.wind FROM traffic AS t ASOF JOIN weather AS w ON t.sensor = w.sensor AND STAMP(t) >= STAMP(w)
SELECT t.lane, w.wind FROM traffic t ASOF LEFT JOIN weather w WITHIN 5 MINUTES MATCH_CONDITION (STAMP(t) > STAMP(w)) ON t.sensor = w.sensor
SELECT t.lane, w.wind FROM traffic t LEFT JOIN weather w WITHIN -1 SECOND TO 2 SECONDS ON t.sensor = w.sensor AND t.lane < w.wind

-- Subqueries
WITH busy AS (SELECT sensor, COUNT(*) AS cars FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor), calm AS (SELECT sensor FROM weather) SELECT busy.sensor FROM busy, calm WHERE cars > 1000
SELECT speed FROM traffic WINDOW(RANGE 1 HOUR) WHERE speed = (SELECT MAX(speed) FROM traffic WINDOW(RANGE 1 HOUR))
SELECT sensor FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor HAVING COUNT(*) >= ALL (SELECT COUNT(*) FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor)
SELECT sensor FROM traffic WHERE speed < ANY (SELECT wind FROM weather WINDOW(RANGE 1 HOUR))
SELECT sensor FROM traffic WHERE sensor NOT IN (SELECT sensor FROM weather WINDOW(RANGE 1 HOUR))
SELECT sensor FROM traffic AS t WHERE NOT EXISTS (SELECT * FROM weather AS w WINDOW(RANGE 1 HOUR) WHERE w.sensor = t.sensor AND w.wind > t.speed)
SELECT sensor FROM traffic AS t WHERE NOT EXISTS (SELECT * FROM weather AS w WINDOW(RANGE 1 HOUR) WHERE w.sensor = t.sensor AND w.wind NOT IN (SELECT u.speed FROM traffic AS u WHERE u.lane = t.lane))
SELECT sensor FROM traffic AS t WHERE lane < (SELECT MAX(w.wind) FROM weather AS w WINDOW(RANGE 1 HOUR) WHERE w.sensor = t.sensor AND w.wind > ALL (SELECT u.speed FROM traffic AS u WHERE u.lane = t.lane))
SELECT sensor FROM traffic AS t WHERE lane = 1 OR speed > (SELECT AVG(u.speed) FROM traffic AS u WINDOW(RANGE 1 HOUR) WHERE u.sensor = t.sensor)

-- Set operations
SELECT sensor FROM traffic UNION ALL SELECT sensor FROM weather
SELECT sensor FROM traffic EXCEPT ALL SELECT sensor FROM weather
SELECT sensor FROM traffic INTERSECT ALL SELECT sensor FROM weather LIFETIME 9 DAYS
(SELECT sensor FROM traffic UNION SELECT sensor FROM weather) EXCEPT SELECT sensor FROM traffic WHERE lane = 2
SELECT sensor FROM traffic INTERSECT SELECT sensor FROM weather
WITH a AS (SELECT sensor FROM traffic) SELECT sensor FROM a UNION SELECT sensor FROM weather LIFETIME 9 DAYS
WITH a AS (SELECT sensor FROM traffic) SELECT sensor FROM a EXCEPT SELECT sensor FROM weather LIFETIME 9 DAYS
WITH a AS (SELECT sensor FROM traffic) SELECT sensor FROM a INTERSECT SELECT sensor FROM weather

-- Order
SELECT sensor, MAX(speed) AS top, COUNT(*) AS n FROM traffic WINDOW(RANGE 1 HOUR SLIDE 1 MINUTE) GROUP BY sensor ORDER BY top DESC NULLS FIRST, (1) LIMIT 10 OFFSET 5
SELECT sensor FROM traffic ORDER BY speed * 2 ASC NULLS LAST, open, lane = 1, speed DESC OFFSET 1 FETCH FIRST 3 ROWS ONLY LIFETIME 90 DAYS
(SELECT sensor, speed FROM traffic UNION SELECT sensor, wind FROM weather) ORDER BY speed FETCH NEXT ROW ONLY
WITH t AS (SELECT sensor, lane FROM traffic) (SELECT sensor, lane FROM t) ORDER BY 2 OFFSET 2
SELECT sensor FROM traffic INTERSECT SELECT sensor FROM weather ORDER BY 1 DESC LIMIT 4
SELECT sensor, speed FROM traffic UNION SELECT sensor, wind FROM weather ORDER BY 2 DESC LIMIT 4
SELECT sensor, speed FROM traffic EXCEPT SELECT sensor, wind FROM weather ORDER BY speed OFFSET 4
SELECT sensor, ROW_NUMBER() OVER (PARTITION BY lane, lane = 1, lane * 2, open ORDER BY speed DESC NULLS FIRST) AS n FROM traffic WINDOW(RANGE 1 HOUR) QUALIFY n <= 3 AND RANK() OVER (ORDER BY COALESCE(speed, 0)) < 9
SELECT sensor, COUNT(*) AS n, DENSE_RANK() OVER (PARTITION BY COUNT(*) % 2 ORDER BY COUNT(*)) AS place FROM traffic WINDOW(RANGE 1 HOUR) GROUP BY sensor
SELECT speed FROM traffic WHERE speed > (SELECT MAX(wind) AS w FROM weather WINDOW(RANGE 1 HOUR) GROUP BY sensor ORDER BY AVG(wind) LIMIT 1)

-- Changes, the past, events and sensors
SELECT sensor FROM Istream(minute_load) AS fresh WINDOW(RANGE 1 HOUR) WHERE cars > 100
SELECT gone.sensor FROM Dstream((SELECT DISTINCT sensor FROM traffic WINDOW(RANGE 5 MINUTES))) AS gone
SELECT COUNT(*) AS seen FROM Rstream(traffic WINDOW(RANGE 5 MINUTES)) AS t
SELECT sensor, AVG(speed) AS speed FROM traffic SINCE 2 HOURS AGO WINDOW(RANGE 30 MINUTES) GROUP BY sensor
SELECT sensor, speed FROM traffic SINCE BEGINNING WHERE speed > 100
SELECT sensor, passing_us / 1000 AS ms FROM traffic EVENTS(speed ABOVE 0.6 BELOW 0.4) AS v WHERE passing_us > 20
SELECT sensor FROM weather EVENTS(temperature ABOVE -5) SAMPLE RATE 10 HZ
SELECT sensor, MAX(wind) AS gust FROM weather WINDOW(RANGE 1 HOUR) GROUP BY sensor SAMPLE EVERY 30 SECONDS AT LEAST EVERY 5 MINUTES LIFETIME 90 DAYS
SELECT sensor, speed WITHIN 0.5 AS speed FROM traffic SAMPLE EVERY 100 MS

-- Tuples in order
SELECT sensor, speed - LAG(speed, 2, 0.5) OVER (PARTITION BY sensor ORDER BY STAMP()) WITHIN 5 MINUTES AS rise FROM traffic
SELECT sensor, LEAD(lane, 2) OVER (PARTITION BY sensor, open) WITHIN 1 MINUTE FROM traffic WHERE lane > 1
SELECT SUM(speed) OVER (PARTITION BY sensor ORDER BY STAMP()) AS total, COUNT(*) OVER (PARTITION BY sensor ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS n FROM traffic
SELECT AVG(speed) FILTER (WHERE open) OVER (RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT ROW) AS x, MAX(lane) OVER (RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS m FROM traffic
SELECT SUM(speed) OVER (ROWS BETWEEN 9 PRECEDING AND 1 PRECEDING) AS a, COUNT(*) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING) AS b, MAX(lane) OVER (RANGE BETWEEN 1 HOUR PRECEDING AND INTERVAL '5' MINUTE PRECEDING) AS c FROM traffic
SELECT AVG(speed) OVER (PARTITION BY sensor ORDER BY STAMP() RANGE BETWEEN UNBOUNDED PRECEDING AND 5 MINUTES PRECEDING) AS a, MIN(lane) OVER (PARTITION BY sensor RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND 0 PRECEDING) AS b, SUM(lane) OVER (PARTITION BY sensor ROWS BETWEEN 2 PRECEDING AND 0 PRECEDING) AS c FROM traffic
SELECT FIRST_VALUE(lane) OVER (ROWS UNBOUNDED PRECEDING) AS a, LAST_VALUE(lane IGNORE NULLS) OVER (RANGE 5 MINUTES PRECEDING) AS b FROM traffic
SELECT sensor, lane FROM traffic QUALIFY CHANGED(lane, open) OVER (PARTITION BY sensor)
SELECT sensor, HYSTERESIS(speed ABOVE 80 BELOW -7.5) OVER (PARTITION BY sensor) AS fast FROM traffic SAMPLE EVERY 1 SECOND

-- Declarations
CREATE STREAM straße (größe REAL, _x TEXT FIXED, "温度" INTEGER) SOURCE mqtt()
CREATE STREAM roads (sensor TEXT FIXED, lane INTEGER, speed REAL UNIT 'mph', ts TIMESTAMP) SOURCE mqtt('sensors', 1) ORDERED BY ts
CREATE STREAM fresh AS SELECT lane FROM traffic
CREATE RELATION incidents (segment TEXT, cost REAL UNIT 'EUR') FROM 'postgresql://db/roads' QUERY 'SELECT 1' WHERE cost >= 2 AND segment IS NOT NULL REFRESH EVERY 30 SECONDS STALE AFTER 5 MINUTES
CREATE RELATION sites FROM 'sqlite:///roads.db' TABLE public.sites REFRESH EVERY 1 HOUR
CREATE FUNCTION wear(speed REAL, TEXT) RETURNS REAL LANGUAGE ARROW STRICT AS 'roads.wear:score'
CREATE FUNCTION near(x REAL) RETURNS BOOLEAN RETURNS NULL ON NULL INPUT AS 'roads.wear:near'
DROP FUNCTION wear
DROP STREAM roads
DROP RELATION incidents
