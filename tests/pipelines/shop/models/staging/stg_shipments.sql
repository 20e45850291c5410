with source as (

    select * from {{ source('raw', 'shipments') }}

)

select
    order_id,
    carrier,
    cast(shipped_at as date) as shipped_on,
    cast(delivered_at as date) as delivered_on
from source
