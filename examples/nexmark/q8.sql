-- NEXMark q8: Monitor new users. Which people registered and opened an auction within the same ten seconds?

SELECT DISTINCT p.id, p.name
FROM person AS p WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)
JOIN auction AS a WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) ON p.id = a.seller;
