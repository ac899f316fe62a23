-- NEXMark q1: Currency conversion. Bids in euros.

SELECT auction, bidder, 0.908 * price AS price, extra FROM bid;
