select s.supplier_name, count(distinct u.product_id) as products, sum(m.revenue) as revenue
from {{ ref('stg_supplies') }} u
join {{ ref('stg_suppliers') }} s using (supplier_id)
join {{ ref('margin_by_product') }} m using (product_id)
group by s.supplier_name
