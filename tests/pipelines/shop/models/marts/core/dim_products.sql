select p.*, coalesce(s.unit_cost, 0) as unit_cost, s.has_perishable
from {{ ref('stg_products') }} p
left join {{ ref('int_supply_costs') }} s using (product_id)
