select product_id, product_name, sum(item_total) as revenue, sum(cost) as cost, sum(item_total) - sum(cost) as margin
from {{ ref('fct_items') }}
group by product_id, product_name
having sum(quantity) > 0
