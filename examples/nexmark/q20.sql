-- NEXMark q20: Expand bid with auction. Bids on auctions of category 10, with the auction. NEXMark joins for ever; here with the auctions of the last hour,
-- and bids that come before their auction are no rows.

SELECT b.auction, b.bidder, b.price, b.channel, b.url, STAMP(b) AS bid_date_time, b.extra AS bid_extra,
       a.item, a.description, a.initial_bid, a.reserve, STAMP(a) AS auction_date_time, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid AS b JOIN auction AS a WINDOW(RANGE 1 HOUR) ON b.auction = a.id
WHERE a.category = 10;
