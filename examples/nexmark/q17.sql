-- NEXMark q17: Auction statistics report. A day's bids on each auction.

SELECT auction, DATE_FORMAT(WINDOW_START(), 'yyyy-MM-dd') AS day,
       COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid WINDOW(RANGE 1 DAY SLIDE 1 DAY)
GROUP BY auction;
