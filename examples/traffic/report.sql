INSERT INTO incidents VALUES ('r01l4', CURRENT_TIMESTAMP, 'lorry on the hard shoulder');
