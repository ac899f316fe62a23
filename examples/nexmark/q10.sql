-- NEXMark q10: Log to file system. Bids with their day and minute, by which NEXMark names the folders of its files; Fjord publishes them on a topic, and keeps
-- them in its results table.

SELECT auction, bidder, price, STAMP() AS date_time, extra,
       DATE_FORMAT(STAMP(), 'yyyy-MM-dd') AS dt, DATE_FORMAT(STAMP(), 'HH:mm') AS hm
FROM bid;
