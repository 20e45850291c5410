{{ config(materialized='incremental', unique_key='item_key', partition_by=['product_type']) }}

select {{ key_of(['i.order_id', 'i.item_id']) }} as item_key, i.*, cast(i.quantity * d.unit_cost as decimal(16, 2)) as cost
from {{ ref('int_items_priced') }} i
join {{ ref('dim_products') }} d on i.product_id = d.product_id
{% if is_incremental() %}
where i.item_id > (select max(item_id) from {{ this }})
{% endif %}
