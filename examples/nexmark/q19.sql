-- NEXMark q19: Auction top 10 price. The ten highest bids on each auction so far, with their places.

SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (
    SELECT *, STAMP() AS date_time,
           ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, STAMP()) AS rank_number
    FROM bid WINDOW(RANGE UNBOUNDED)
) AS ranked
WHERE rank_number <= 10;
