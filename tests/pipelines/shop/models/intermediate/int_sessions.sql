{{ config(materialized='table') }}

with numbered as (

    select *, sum(starts_session) over (partition by visitor order by at, event_id) as session_number
    from {{ ref('int_event_gaps') }}

)

select
    visitor, session_number, max(customer_id) as customer_id, min(at) as began_at, max(at) as ended_at,
    count(*) as events, count(distinct page) as pages
from numbered
group by visitor, session_number
