"""How good labels are: metrics, their uncertainty, and the tables that both papers print."""
