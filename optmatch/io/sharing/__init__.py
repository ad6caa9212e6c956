"""Tables of resources and jobs, as CSV or Parquet."""
