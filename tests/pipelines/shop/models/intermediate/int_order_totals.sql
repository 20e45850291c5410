{{ config(materialized='view') }}

select
    order_id,
    sum(item_total) as subtotal,
    sum(quantity) as items,
    count(distinct product_id) as products,
    max(case when product_type = 'drink' then 1 else 0 end) = 1 as has_drink
from {{ ref('int_items_priced') }}
group by order_id
