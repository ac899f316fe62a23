-- What was reported in the last two hours.
CREATE RELATION recent (segment TEXT, description TEXT)
FROM 'postgresql:///fjord_roads'
QUERY 'SELECT segment, description FROM incidents WHERE reported > now() - interval ''2 hours'''
REFRESH EVERY 1 SECOND STALE AFTER 1 MINUTE;
