-- NEXMark q14: Calculation. Bids in euros with the time of day, and how often a letter occurs in a text, for which NEXMark has a function of its own.

SELECT auction, bidder, 0.908 * price AS price,
       CASE
           WHEN HOUR(STAMP()) BETWEEN 8 AND 18 THEN 'dayTime'
           WHEN HOUR(STAMP()) <= 6 OR HOUR(STAMP()) >= 20 THEN 'nightTime'
           ELSE 'otherTime'
       END AS bid_time_type,
       STAMP() AS date_time, extra, LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
