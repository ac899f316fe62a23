-- NEXMark q7: Highest bid. The highest bids of every ten seconds.

SELECT auction, price, bidder, STAMP() AS date_time, extra
FROM bid WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS)
WHERE price = (SELECT MAX(price) FROM bid WINDOW(RANGE 10 SECONDS SLIDE 10 SECONDS));
