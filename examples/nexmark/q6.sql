-- NEXMark q6: Average selling price by seller. NEXMark takes the last ten auctions of a seller that have closed, each at an instant of its own, and Flink SQL
-- cannot run it; here the last ten bids that became the highest of an auction of the seller while it was open.

SELECT seller, AVG(price) OVER (PARTITION BY seller ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS avg_price
FROM ISTREAM((
    SELECT a.id, a.seller, MAX(b.price) AS price
    FROM auction AS a WINDOW(RANGE 1 HOUR) JOIN bid AS b WINDOW(RANGE 1 HOUR)
    ON a.id = b.auction AND STAMP(b) BETWEEN STAMP(a) AND TIMESTAMP_MICROS(a.expires)
    GROUP BY a.id, a.seller
)) AS sale;
