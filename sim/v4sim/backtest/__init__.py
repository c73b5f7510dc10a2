"""Published measurements against predictions: what `v4sim backtest` does.

    schema     a targets file, read strictly
    deploy     a target as a deployment, and what its source left open
    workload   a target as calls to replay
    replay     the runs of a target
    observe    a metric's name and statistic, read out of runs
    score      error against the published range; what counts and what does not; summaries
    intervals  the profile's residual errors carried through to the metrics
    document   JSON and the table of docs/backtest.md

Nothing here is fitted: a target sets options that its source states, and nothing else.
"""
