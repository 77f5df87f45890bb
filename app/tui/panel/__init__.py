"""The live panel: speed, gain, who drafted, and the details behind them."""
