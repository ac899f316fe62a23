-- NEXMark q8: Monitor new users. Which people registered and opened an auction within the same ten seconds?

SELECT p.id, p.name, p.stime
FROM (
    SELECT id, name, WINDOW_START() AS stime FROM person WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) GROUP BY id, name
) AS p
JOIN (SELECT DISTINCT seller FROM auction WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)) AS a ON p.id = a.seller;
