select distinct
    ordered_on as day,
    {{ dbt.date_trunc('month', 'ordered_on') }} as month,
    dayofweek(ordered_on) in (1, 7) as is_weekend
from {{ ref('stg_orders') }}
