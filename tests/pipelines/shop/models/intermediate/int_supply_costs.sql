select product_id, sum(cost) as unit_cost, max(is_perishable) as has_perishable
from {{ ref('stg_supplies') }}
group by product_id
