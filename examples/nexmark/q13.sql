-- NEXMark q13: Bounded side input. Bids with a value of a relation that is looked up: side_input, of 10,000 keys.

SELECT b.auction, b.bidder, b.price, STAMP(b) AS date_time, s.value
FROM bid AS b JOIN side_input AS s ON b.auction % 10000 = s.key;
