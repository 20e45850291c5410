with source as (

    select * from {{ source('raw', 'orders') }}

)

select
    id as order_id,
    customer as customer_id,
    store as store_id,
    employee as employee_id,
    status,
    cast(ordered_at as date) as ordered_on,
    ordered_at
from source
where ordered_at >= timestamp '{{ var("first_day") }}'
