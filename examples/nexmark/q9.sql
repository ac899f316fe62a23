-- NEXMark q9: Winning bids. Of each auction the highest bid that came while it was open. NEXMark keeps all auctions for ever; here those of the last hour.

SELECT a.id, a.item, a.description, a.initial_bid, a.reserve, STAMP(a) AS date_time, a.expires, a.seller, a.category, a.extra,
       b.auction, b.bidder, b.price, STAMP(b) AS bid_date_time, b.extra AS bid_extra
FROM auction AS a WINDOW(RANGE 1 HOUR) JOIN bid AS b WINDOW(RANGE 1 HOUR)
ON a.id = b.auction AND STAMP(b) BETWEEN STAMP(a) AND TIMESTAMP_MICROS(a.expires)
QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, STAMP(b)) = 1;
