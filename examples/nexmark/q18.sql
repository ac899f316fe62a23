-- NEXMark q18: Find last bid. The last bid of each bidder on each auction: valid until the next.

SELECT auction, bidder, price, channel, url, STAMP() AS date_time, extra
FROM bid WINDOW(PARTITION BY bidder, auction ROWS 1);
