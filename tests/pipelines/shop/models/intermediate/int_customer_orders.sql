{{ config(materialized='table', tags=['customers']) }}

select
    customer_id,
    count(*) as orders,
    min(ordered_on) as first_ordered_on,
    max(ordered_on) as last_ordered_on,
    sum(subtotal) as spent
from {{ ref('stg_orders') }}
left join {{ ref('int_order_totals') }} using (order_id)
where status != 'cancelled'
group by customer_id
