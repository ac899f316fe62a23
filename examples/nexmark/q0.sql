-- NEXMark q0: Pass through. What a bid costs to read and publish.

SELECT auction, bidder, price, extra FROM bid;
