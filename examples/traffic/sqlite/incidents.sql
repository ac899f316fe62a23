-- What was reported on the recorded day.
CREATE RELATION incidents (segment TEXT, description TEXT)
FROM 'sqlite:roads.db'
QUERY 'SELECT segment, description FROM incidents WHERE reported >= ''2012-03-01'' AND reported < ''2012-03-02'''
REFRESH EVERY 30 SECONDS STALE AFTER 5 MINUTES;
