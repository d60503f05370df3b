from .tables import Row as Row
from .tables import kind_of as kind_of
from .tables import parquet_note as parquet_note
from .tables import read_table as read_table
from .tables import write_csv as write_csv
from .tables import write_parquet as write_parquet
