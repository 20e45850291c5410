select
    i.item_id, i.order_id, i.product_id, p.product_name, p.product_type, i.quantity,
    cast(i.quantity * p.price as decimal(16, 2)) as item_total
from {{ ref('stg_items') }} i
join {{ ref('stg_products') }} p on i.product_id = p.product_id
