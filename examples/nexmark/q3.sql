-- NEXMark q3: Local item suggestion. Which people of three states sell in category 10? NEXMark joins for ever; here a person and an auction meet that come within
-- an hour of each other, and each pair is one row, at the instant of the later.

SELECT name, city, state, id
FROM ISTREAM((
    SELECT p.name, p.city, p.state, a.id
    FROM auction AS a WINDOW(RANGE 1 HOUR) JOIN person AS p WINDOW(RANGE 1 HOUR) ON a.seller = p.id
    WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
)) AS sale;
