-- NEXMark q1: Currency conversion. Bids in euros.

SELECT auction, bidder, 0.908 * price AS price, STAMP() AS date_time, extra FROM bid;
