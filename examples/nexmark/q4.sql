-- NEXMark q4: Average price for a category. Of each category the average of the highest bids that came while their auctions were open. NEXMark keeps
-- all auctions for ever; here those of the last hour.

SELECT category, AVG(final) AS final
FROM (
    SELECT a.id, a.category, MAX(b.price) AS final
    FROM auction AS a WINDOW(RANGE 1 HOUR) JOIN bid AS b WINDOW(RANGE 1 HOUR)
    ON a.id = b.auction AND STAMP(b) BETWEEN STAMP(a) AND TIMESTAMP_MICROS(a.expires)
    GROUP BY a.id, a.category
) AS sale
GROUP BY category;
