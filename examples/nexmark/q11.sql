-- NEXMark q11: User sessions. How many bids did a user make without a pause of ten seconds?

SELECT bidder, COUNT(*) AS bid_count, MIN(STAMP()) AS starttime, MAX(STAMP()) + INTERVAL '10' SECOND AS endtime
FROM bid WINDOW(SESSION GAP 10 SECONDS PARTITION BY bidder) GROUP BY bidder;
