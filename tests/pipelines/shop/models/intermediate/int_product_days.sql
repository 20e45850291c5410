{{ config(materialized='incremental', unique_key=['product_id', 'ordered_on'], incremental_strategy='merge') }}

select i.product_id, o.ordered_on, sum(i.quantity) as quantity, sum(i.item_total) as revenue
from {{ ref('int_items_priced') }} i
join {{ ref('stg_orders') }} o on i.order_id = o.order_id
{{ only_new('o.ordered_on') }}
group by i.product_id, o.ordered_on
