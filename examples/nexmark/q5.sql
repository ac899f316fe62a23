-- NEXMark q5: Hot items. Which auctions had the most bids of the last ten seconds? Every two seconds.

SELECT auction, COUNT(*) AS num
FROM bid WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS)
GROUP BY auction
HAVING COUNT(*) >= ALL (SELECT COUNT(*) FROM bid WINDOW(RANGE 10 SECONDS SLIDE 2 SECONDS) GROUP BY auction);
