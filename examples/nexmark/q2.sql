-- NEXMark q2: Selection. Bids on certain auctions.

SELECT auction, price FROM bid WHERE auction % 123 = 0;
