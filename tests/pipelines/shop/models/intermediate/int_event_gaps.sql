select
    *,
    case
        when unix_timestamp(at) - unix_timestamp(lag(at) over (partition by visitor order by at, event_id)) <= 1800 then 0
        else 1
    end as starts_session
from {{ ref('stg_events') }}
