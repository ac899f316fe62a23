-- NEXMark q0: Pass through. What a bid costs to read and publish.

SELECT auction, bidder, price, STAMP() AS date_time, extra FROM bid;
