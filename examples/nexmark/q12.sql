-- NEXMark q12: Windows of ten seconds. How many bids does a user make? NEXMark goes by the time of processing, which no answer of Fjord depends on: by stamps.

SELECT bidder, COUNT(*) AS bid_count, WINDOW_START() AS starttime, WINDOW_END() AS endtime
FROM bid WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS) GROUP BY bidder;
