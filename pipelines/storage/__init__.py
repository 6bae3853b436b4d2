"""Store typed tables, encrypted ("sealed") columns, and the answers of labellers."""
