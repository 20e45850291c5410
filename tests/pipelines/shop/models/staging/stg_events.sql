with source as (

    select * from {{ source('raw', 'events') }}

)

select
    id as event_id,
    visitor,
    customer as customer_id,
    page,
    at,
    cast(at as date) as event_on
from source
