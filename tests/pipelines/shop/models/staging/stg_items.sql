with source as (

    select * from {{ source('raw', 'items') }}

)

select
    id as item_id,
    order_id,
    product as product_id,
    quantity
from source
