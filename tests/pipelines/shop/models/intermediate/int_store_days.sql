{{ config(materialized='table') }}

select o.store_id, o.ordered_on, count(*) as orders, sum(t.subtotal) as revenue
from {{ ref('stg_orders') }} o
join {{ ref('int_order_totals') }} t on o.order_id = t.order_id
where o.status != 'cancelled'
group by o.store_id, o.ordered_on
