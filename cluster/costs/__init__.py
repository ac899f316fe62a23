"""What plans are estimated to cost before they run: rates, validities, and rows that operators keep."""
