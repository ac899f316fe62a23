-- The streams of NEXMark, each stamped by the instant at which its event happened.

CREATE STREAM person (
    id INTEGER, name TEXT, email TEXT, credit_card TEXT, city TEXT, state TEXT, extra TEXT, date_time TIMESTAMP
) SOURCE mqtt() ORDERED BY date_time;

CREATE STREAM auction (
    id INTEGER, item TEXT, description TEXT, initial_bid INTEGER, reserve INTEGER, expires TIMESTAMP, seller INTEGER,
    category INTEGER, extra TEXT, date_time TIMESTAMP
) SOURCE mqtt() ORDERED BY date_time;

CREATE STREAM bid (
    auction INTEGER, bidder INTEGER, price INTEGER, channel TEXT, url TEXT, extra TEXT, date_time TIMESTAMP
) SOURCE mqtt() ORDERED BY date_time;
